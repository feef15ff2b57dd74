"""Run a plan: fetch its requests, decode, apply the residual filter."""
