"""A js-libp2p client against a real node."""
