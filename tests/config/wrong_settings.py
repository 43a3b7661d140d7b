"""Texts with a wrong setting, and what the fault of each says."""

from __future__ import annotations

FAULTS = [
    ("listener = 3", "1: listener must be one or more sections, [[listener]] (got 3)"),
    ("[listener]\naddress = '0.0.0.0:25'", "1: listener must be one or more sections, [[listener]]"),
    ("[[listener]]\npurpose = 'mx'", "1: [[listener]] address must be set, such as"),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\n\n[[listener]]\naddress = '0.0.0.0:587'\ntls = 'must'",
        '6: [[listener]] tls must be "none", "starttls", "required" or "implicit" (got \'must\')',
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\nproxy = ['10.0.0.1/8']",
        "3: [[listener]] proxy must be a network such as",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\nproxy = ['0.0.0.0/1', '128.0.0.0/1']",
        "3: [[listener]] proxy must be your own networks only; together these are 0.0.0.0/0",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\n\n[[listener]]\naddress = '0.0.0.0:25'",
        "5: [[listener]] address must be an address of its own; 0.0.0.0:25 is in another [[listener]]",
    ),
    (
        "[receiver]\nlisten = ['0.0.0.0:25']\n[[listener]]\naddress = '0.0.0.0:25'",
        "4: [[listener]] address must be an address of its own; 0.0.0.0:25 is in [receiver] listen",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\ntls = 'none'\nauth = 'offered'",
        "4: [[listener]] auth needs TLS, so that no password is sent in the clear",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:587'\npurpose = 'submission'",
        "1: [[listener]] tls needs a certificate; set tls_certificate and tls_key in [receiver]",
    ),
    ("[[listener]]\naddress = '0.0.0.0:25'\nauth = 'offered'", "[[listener]] tls needs a certificate"),
    ("[[certificate]]\nnames = ['a.example']\nkey = 'k'", "1: [[certificate]] certificate must be set"),
    ("[[certificate]]\nnames = ['a b']\nkey = 'k'", "2: [[certificate]] names must be a host name such as"),
    ("[auth]\nfailures_per_user = 0", "2: [auth] failures_per_user must be between 1 and 1000000 failures (got 0)"),
    (
        "proceses = 1\n",
        "1: proceses is not a setting here; allowed here: home, queue_directory, spool_directory, "
        "run_directory, log_directory, queue, receiver,",
    ),
    (
        "[receiver]\nproceses = 1",
        "2: [receiver] proceses is not a setting here; did you mean 'processes'?",
    ),
    (
        "[reciever]\nprocesses = 1",
        "1: reciever is not a setting here; did you mean 'receiver'?",
    ),
    ("listen = []", "1: listen is not a setting here; it belongs in [receiver] or [metrics] or [nodes] or [portal]"),
    (
        "processes = 2",
        "1: processes is not a setting here; it belongs in [receiver] or [deliverer] or [portal]",
    ),
    (
        "[relay]\nhome = 'x'",
        "2: [relay] home is not a setting here; it belongs at the top of the file, before the first section",
    ),
    (
        "\n[transports.smtp]\nlimit = 1",
        "3: [transports.smtp] limit is not a setting here; allowed here: initial_destination_concurrency, "
        "destination_concurrency_limit,",
    ),
    ("receiver = 3", "1: receiver must be a section, [receiver] (got 3)"),
    ("[transports]\nsmtp = 3", "2: [transports] smtp must be a section, [transports.smtp] (got 3)"),
    ("[[receiver]]\nprocesses = 1", "1: receiver must be a section, [receiver] (got [{'processes': 1}])"),
    ("home = 3", "1: home must be a string (got 3)"),
    ("home = ''", "1: home must be a path, absolute or relative to the configuration file (got '')"),
    ("home = 'a\\b'\nhome = 'c'", "2: not valid TOML: Cannot overwrite a value (at the end of the file)"),
    ('home = "a\\u0000b"', "1: home must be a path, absolute or relative to the configuration file (got 'a\\x00b')"),
    (
        "[receiver]\nprocesses = 0",
        "2: [receiver] processes must be between 1 and 64 (got 0)",
    ),
    ("[receiver]\nprocesses = 65", "2: [receiver] processes must be between 1 and 64 (got 65)"),
    ("[receiver]\nprocesses = true", "2: [receiver] processes must be a whole number between 1 and 64 (got true)"),
    ("[receiver]\nprocesses = 1.0", "2: [receiver] processes must be a whole number between 1 and 64 (got 1.0)"),
    ("[receiver]\nprocesses = '1'", "2: [receiver] processes must be a whole number between 1 and 64 (got '1')"),
    (
        "[queue]\ncheckpoint_interval_s = nan",
        "2: [queue] checkpoint_interval_s must be between 0.05 and 60 seconds (got nan)",
    ),
    (
        "[queue]\ncheckpoint_interval_s = inf",
        "2: [queue] checkpoint_interval_s must be between 0.05 and 60 seconds (got inf)",
    ),
    (
        "[transports.smtp]\ntls = 'must'",
        '2: [transports.smtp] tls must be "none", "may", "encrypt", "verify", "dane", "dane-only" or "mta-sts" (got \'must\')',
    ),
    ("[receiver]\nlisten = '127.0.0.1:25'", "2: [receiver] listen must be a list of strings (got '127.0.0.1:25')"),
    ("[receiver]\nlisten = []", "2: [receiver] listen must have at least one value (got [])"),
    (
        "[receiver]\nlisten = [\n'127.0.0.1:25',\n'localhost:25']",
        '4: [receiver] listen must be "IPv4 address:port" or "[IPv6 address]:port", with a port from 1 to 65535 '
        "(got 'localhost:25')",
    ),
    (
        "[receiver]\nlisten = ['127.0.0.1:25', '127.0.0.1:25']",
        "2: [receiver] listen must not have a value twice (got '127.0.0.1:25' twice)",
    ),
    ("[receiver]\nlisten = ['127.0.0.1']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['127.0.0.1:0']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['127.0.0.1:65536']", "port from 1 to 65535"),
    (
        "[receiver]\nlisten = ['::1:25']",
        '2: [receiver] listen must be "IPv4 address:port" or "[IPv6 address]:port", with a port from 1 to 65535 '
        "(got '::1:25')",
    ),
    (
        "[receiver]\nhostname = 'a b'",
        '2: [receiver] hostname must be a host name such as "mail.example.org", or an address such as '
        "\"[192.0.2.1]\" (got 'a b')",
    ),
    (
        "[receiver]\nhostname = '[1.2.3]'",
        '2: [receiver] hostname must be a host name such as "mail.example.org", or an address such as '
        "\"[192.0.2.1]\" (got '[1.2.3]')",
    ),
    (
        "[relay]\nnetworks = ['127.0.0.1/8']",
        '2: [relay] networks must be a network such as "192.0.2.0/24" or "2001:db8::/32", or one address (got '
        "'127.0.0.1/8'); did you mean '127.0.0.0/8'?",
    ),
    (
        "[relay]\nnetworks = ['localhost']",
        '2: [relay] networks must be a network such as "192.0.2.0/24" or "2001:db8::/32", or one address (got \'localhost\')',
    ),
    ("[relay]\nnetworks = ['0.0.0.0/0']", "an open relay"),
    (
        "[relay]\nnetworks = ['::/1', '8000::/1']",
        "2: [relay] networks must be your own networks only; together these are ::/0, all addresses: an open relay",
    ),
    (
        "[relay]\ndomains = ['*']",
        '2: [relay] domains must be a domain such as "example.org", or ".example.org" for all its subdomains (got '
        "'*'); \"*\" would be an open relay",
    ),
    (
        "[relay]\ndomains = ['.']",
        '2: [relay] domains must be a domain such as "example.org", or ".example.org" for all its subdomains (got \'.\')',
    ),
    (
        "[relay]\ndomains = ['a@example.org']",
        '2: [relay] domains must be a domain such as "example.org", or ".example.org" for all its subdomains (got '
        "'a@example.org')",
    ),
    (
        "[reports]\nbroker_url = 'amqp://x'",
        '2: [reports] broker_url must be a Redis address: "redis://host:port/0", "rediss://…" or '
        "\"redis+socket:///path\" (got 'amqp://x')",
    ),
    (
        "[reports]\nspark_master = 'mesos://x'",
        '2: [reports] spark_master must be a Spark master: "local[N]", "local[*]", "spark://host:port", "yarn" or '
        "\"k8s://…\" (got 'mesos://x')",
    ),
    (
        "[reports]\nzone = 'Moon/Base'",
        '2: [reports] zone must be a time zone such as "UTC" or "Europe/Vienna" (got \'Moon/Base\')',
    ),
    (
        "[reports]\nrecipients = ['nobody']",
        "2: [reports] recipients must be a mail address such as \"user@example.org\" (got 'nobody')",
    ),
    (
        "[reports]\nkeep = ['senders']",
        '2: [reports] keep must be "TABLE:DAYS", such as "senders:400" (got \'senders\')',
    ),
    (
        "[deliverer]\nnameservers = ['dns.example']",
        '2: [deliverer] nameservers must be "address", "IPv4 address:port" or "[IPv6 address]:port" of a name '
        "server (got 'dns.example')",
    ),
    ("[queue]\nretry_ladder_s = []", "2: [queue] retry_ladder_s must have 1 to 32 steps (got 0)"),
    (
        "[queue]\nretry_ladder_s = [0, 1]",
        "2: [queue] retry_ladder_s must have steps between 1 and 604800 seconds, which is 7 days (got [0, 1])",
    ),
    ("[queue]\nretry_ladder_s = [5, 5]", "2: [queue] retry_ladder_s must be strictly increasing (got [5, 5])"),
    ("[queue]\nretry_ladder_s = [1, 2.5]", "2: [queue] retry_ladder_s must be a list of whole numbers (got [1, 2.5])"),
    (
        "[queue]\nretry_ladder_s = [1, 999999999]",
        "2: [queue] retry_ladder_s must have steps between 1 and 604800 seconds, which is 7 days (got [1, 999999999])",
    ),
    (
        "[scheduler]\nminimal_backoff_time = 5000",
        "2: [scheduler] minimal_backoff_time must not be greater than maximal_backoff_time (got 5000 and 4000 seconds)",
    ),
    (
        "[transports.'Upper case']",
        "1: [transports] Upper case must be the name of a transport: a letter, then up to 31 of a-z, 0-9, _ and - "
        "(got 'Upper case')",
    ),
    (
        "[routes]\n'a b' = 'smtp'",
        '2: [routes] a b must be a pattern: "example.org", ".example.org" for all its subdomains, '
        '"user@example.org", or "*" for all others (got \'a b\')',
    ),
    (
        "[routes]\n'example.org' = 25",
        '2: [routes] example.org must be a string such as "smtp:example.org:25" (got 25)',
    ),
    ("[routes]\n'example.org' = 'smtp:127.0.0.1'", "write an address in brackets: [127.0.0.1]"),
    (
        "[routes]\n'example.org' = 'smpt:a.example'",
        "2: [routes] example.org must name a transport that is defined (got 'smpt:a.example'); did you mean "
        "'smtp'? Defined: smtp, relay, bulk. To define another one, add [transports.smpt]",
    ),
    (
        "[routes]\n'example.org' = 'smtp'\n'Example.Org' = 'smtp'",
        "3: [routes] Example.Org must not be there twice; it is the same as 'example.org'",
    ),
    (
        "queue_directory = 'x'\nspool_directory = './x'",
        "2: spool_directory must be a directory of its own; 'x' is queue_directory already",
    ),
    (
        f"home = '{'x' * 90}'",
        "1: home makes the path of the sockets too long; set run_directory to a path of up to 80 bytes (got ",
    ),
    ("[receiver\nprocesses = 1", "1: not valid TOML: Expected ']' at the end of a table declaration (column 10)"),
    ("home = 'x'\n\nx = [1,", "3: not valid TOML: Invalid value (at the end of the file)"),
    ("[receiver]\n[relay]\n[receiver]", "3: not valid TOML: Cannot declare ('receiver',) twice (column 10)"),
    ("x = " + "[" * 5000, "waypost.toml: brackets are nested too deeply"),
]
