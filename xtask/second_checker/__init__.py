"""The second checker of certificates, by subject: `plan` and `stage` hold what a certificate states, and the other
modules judge it. `xtask/certificate.py` runs them."""
