"""What a translation must keep unaltered: placeholders, inline codes, numbers, terms."""
