"""Methods of calibration: a module each, which exports METHOD (`rules.calibration.CalibrationMethod`)."""
