"""What a translation must hand on unaltered: placeholders, inline codes, numbers, terms."""
