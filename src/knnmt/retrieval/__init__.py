"""From neighbours to a distribution: equations 2 and 3, the cache, and the memory's closest segments."""
