"""Tests of mailcore/doctor: each finding is made to appear with real parts."""
