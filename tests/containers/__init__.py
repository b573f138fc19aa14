"""The image and the Compose file in a real container engine: `make compose-test`."""
