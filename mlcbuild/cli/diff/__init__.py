"""`mlcbuild diff`: two targets, configurations, revisions or builds, stage by stage."""
