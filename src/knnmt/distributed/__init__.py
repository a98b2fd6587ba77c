"""Work on several processes and machines: slices of a build, by Ray."""
