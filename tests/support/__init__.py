"""Builders, fakes and processes under control: what several tests need. No test lies here."""
