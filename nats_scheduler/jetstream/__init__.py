"""The only room that imports the client: connection, capabilities, following, publishing, registry."""
