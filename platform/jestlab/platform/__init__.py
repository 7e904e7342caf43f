"""How it runs: spec language, plan, launch, worker, results store and command line."""
