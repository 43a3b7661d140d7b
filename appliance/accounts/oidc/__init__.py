"""Single sign-on by OpenID Connect."""
