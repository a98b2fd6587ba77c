"""Work on several processes and machines: slices of a build as tasks of Ray, and stores whose entries are in shards."""
