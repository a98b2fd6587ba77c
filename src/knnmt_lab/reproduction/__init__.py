"""The paper's experiments from stores to tables:

producing (with the light core, in short stages) and reporting, separately.
"""
