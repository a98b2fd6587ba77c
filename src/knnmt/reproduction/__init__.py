"""The paper's experiments from stores to tables: producing (light core, in short stages) and reporting, apart."""
