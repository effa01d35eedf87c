"""The engines: how clients and server train together."""
