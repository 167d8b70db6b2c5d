"""Tests, in the folders of the packages that they test; CONTRIBUTING.md says which."""
