"""Rules for the repository itself: architecture, documents, installation, deployment."""
