"""Many sidecars and one modelled JetStream on a virtual clock, from one seed."""
