"""Files of arrays and JSON, what may be read from them, and estimators in them."""
