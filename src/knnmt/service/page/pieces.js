// Texts in pieces: what two of them do not share, and what of one is marked.
const PART = /[\p{L}\p{N}\p{M}_]+|\s+|[^\p{L}\p{N}\p{M}_\s]/gu;
const MOST_PARTS = 600; // of a text that is compared; a longer one is shown as it is

// A text as [piece, whether the other text lacks it there]; words are compared whole.
export function differences(text, other) {
  const mine = text.match(PART) ?? [];
  const theirs = other.match(PART) ?? [];
  if (mine.length > MOST_PARTS || theirs.length > MOST_PARTS) return [[text, false]];
  // longest[i][j]: parts that mine from i on and theirs from j on have in common
  const longest = Array.from({ length: mine.length + 1 }, () => new Uint16Array(theirs.length + 1));
  for (let i = mine.length - 1; i >= 0; i--)
    for (let j = theirs.length - 1; j >= 0; j--)
      longest[i][j] = mine[i] === theirs[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const isNew = [];
  for (let i = 0, j = 0; i < mine.length; ) {
    if (j < theirs.length && mine[i] === theirs[j]) {
      isNew.push(false);
      i++;
      j++;
    } else if (j < theirs.length && longest[i][j + 1] > longest[i + 1][j]) {
      j++;
    } else {
      isNew.push(true);
      i++;
    }
  }
  // White space between two new words is new, too.
  mine.forEach((part, i) => (isNew[i] ||= !part.trim() && isNew[i - 1] && isNew[i + 1] === true));
  const pieces = [];
  mine.forEach((part, i) => {
    const last = pieces.at(-1);
    if (last && last[1] === isNew[i]) last[0] += part;
    else pieces.push([part, isNew[i]]);
  });
  return pieces;
}

// A text in three: before a span, the span, and after it, cut at words where it is long. Spans count whole characters.
export function around(text, [start, end], most) {
  const characters = [...text];
  const room = Math.max(0, most - (end - start));
  let left = Math.max(0, start - Math.max(room - (characters.length - end), room >> 1));
  let right = Math.min(characters.length, end + Math.max(room - start, room - (room >> 1)));
  while (left > 0 && left < start && characters[left - 1] !== " ") left++;
  while (right < characters.length && right > end && characters[right] !== " ") right--;
  const cut = (from, to) => characters.slice(from, to).join("");
  return [(left ? "… " : "") + cut(left, start), cut(start, end), cut(end, right) + (right < characters.length ? " …" : "")];
}
