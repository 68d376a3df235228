"""What does a device draw under load? From how busy its memory and its arithmetic are, fitted to measured cells."""
