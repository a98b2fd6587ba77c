"""Routes of the service, one file a resource."""
