"""Steps of placing by load (ADR 63): free rows, missing rows, single moves and swaps."""
