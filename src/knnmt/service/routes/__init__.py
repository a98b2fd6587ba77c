"""The routes of the service, one file for each resource."""
