"""Tests of what is deployed: the install manifest, the image, the compose file."""
