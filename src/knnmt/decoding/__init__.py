"""Search for hypotheses: greedy and beam loops over an engine."""
