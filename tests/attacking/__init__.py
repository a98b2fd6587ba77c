"""The parts of `tests/attack.py`: a service, honest clients, hostile ones, and what is required at the end."""
