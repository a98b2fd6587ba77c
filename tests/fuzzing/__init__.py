"""Inputs that nobody would write by mistake, made by chance from sound ones."""
