"""What the fork server imports before and after everything else that ranks need."""
