"""Launch studies: start attempts at each run through an executor, dependencies first."""
