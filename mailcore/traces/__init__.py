"""Traces of messages for OpenTelemetry, made from the log: imported only with [traces] endpoint."""
