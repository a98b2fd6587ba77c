// What greedy search takes of several steps of a sentence, one after the other, and what it drafts next.
//
// A block is a sentence, with one warp; lane t looks at step t, of at most 31, and at token t of the draft, of at most 32.
// tokens, best and offsets (rows,): the best token after the last one and after each drafted one, its log-probability, and what
// is to be added to that. Steps count up to the first whose token was not drafted, or that ends the sentence. The next draft
// follows the nearest entry of the last step that has its token.
//
// numbers: how many steps and neighbours, how long drafts and rows of `chosen` are, the most tokens of a sentence, the token
// that ends it, the one that is forced at its end or -1, the vocabulary, how many numbers one of the two `chosen` has.
// Two results are on the host, for steps in turn; parity (sentences,) says which is next.
// Written: draft (sentences, draft), last and generated (sentences,), ended (sentences,), sums and steps (sentences,), and
// chosen, as knnmt.decoding.recorded_places reads it.

constexpr unsigned ALL = 0xffffffffu;

extern "C" __global__ void knnmt_take(const int* numbers, const float* best, const long long* tokens, const float* offsets,
                                      const float* sums_after, const float* steps_after, const long long* ids, int entries,
                                      const int* values, long long* draft, long long* last, long long* generated, int* ended,
                                      float* sums, float* steps, int* parity, int* chosen) {
    const int turns = numbers[0], k = numbers[1], drafted = numbers[2], most = numbers[4], end = numbers[5];
    const int sentence = blockIdx.x, lane = threadIdx.x, row = sentence * turns + lane;
    const int which = parity[sentence];
    int* mine = chosen + (long long)which * numbers[8] + (long long)sentence * numbers[3];
    __syncwarp();
    if (lane == 0) parity[sentence] = 1 - which;
    if (ended[sentence]) {
        if (lane == 0) mine[0] = mine[1] = mine[2] = 0;
        return;
    }
    int token = end;
    float gain = 0.0f, offset = 0.0f;
    bool stops = true, right = false;
    if (lane < turns) {
        const long long place = generated[sentence] + lane;
        const bool forced = numbers[6] >= 0 && place == most - 1;
        token = forced ? numbers[6] : (int)tokens[row];
        offset = offsets[row];
        gain = forced ? 0.0f : best[row] + offset;
        stops = token == end || place >= most - 1 || !(gain > -1e30f);
        right = lane + 1 < turns && draft[(long long)sentence * drafted + lane] == token;
        mine[3 + lane] = token;
        mine[4 + drafted + lane] = __float_as_int(gain);
    }
    const unsigned going = __ballot_sync(ALL, right && !stops), stopping = __ballot_sync(ALL, stops);
    const int taken = __ffs(~going), final_row = sentence * turns + taken - 1;
    const int newest = __shfl_sync(ALL, token, taken - 1);
    offset = __shfl_sync(ALL, offset, taken - 1);
    const long long* near = ids + (long long)final_row * k;
    int found = k;
    for (int i = lane; i < k && found == k; i += 32)
        if (near[i] >= 0 && near[i] < entries && values[near[i]] == newest) found = i;
    for (int apart = 16; apart; apart /= 2) found = min(found, __shfl_xor_sync(ALL, found, apart));
    bool ends = false;
    if (lane < drafted && found < k) {
        const long long place = near[found] + 1 + lane;
        const int next = place < entries ? values[place] : end;
        const bool sound = next >= 0 && next < numbers[7];
        draft[(long long)sentence * drafted + lane] = sound ? next : end;
        ends = !sound || next == end;
    }
    const unsigned ending = __ballot_sync(ALL, ends);
    if (lane) return;
    last[sentence] = newest;
    ended[sentence] = stopping >> (taken - 1) & 1;
    generated[sentence] = ended[sentence] ? 0 : generated[sentence] + taken;  // a later step may have fewer slots
    sums[sentence] = sums_after[final_row];
    steps[sentence] = steps_after[final_row];
    mine[0] = taken;
    mine[1] = __float_as_int(found < k ? 1.0f - expf(offset) : 0.0f);
    mine[2] = ended[sentence] ? -1 : ending ? __ffs(ending) - 1 : drafted;
}
