"""Ways to send mail with less encryption than was demanded, a password to a wrong place, or mail without its signature."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a connection is kept without its policy",
        "mailcore/deliverer/client.py",
        "    return work.transport, policy, address.host, address.address, work.next_hop.port, login, mask\n",
        "    return work.transport, Policy('may'), address.host, address.address, work.next_hop.port, login, mask\n",
        "tests/deliverer/test_tls_levels.py tests/deliverer/test_client.py",
    ),
    Mutation(
        "a certificate with another name is taken",
        "mailcore/tls/checking.py",
        "        wrong = mismatch(session.getpeercert(), policy.names)\n",
        "        wrong = ''\n",
        "tests/deliverer/test_tls_levels.py",
    ),
    Mutation(
        "a broken handshake is followed by mail in the clear at any level",
        "mailcore/deliverer/opening.py",
        '        if policy.level != "may":\n',
        '        if policy.level == "none":\n',
        "tests/deliverer/test_tls_levels.py",
    ),
    Mutation(
        "a failed look-up of TLSA records counts as a denial",
        "mailcore/tls/dane.py",
        "    if answer is not None and answer.failed:\n",
        "    if False:\n",
        "tests/deliverer/test_dane.py -k bogus",
    ),
    Mutation(
        "TLSA records are asked of any name server",
        "mailcore/routing/mx.py",
        '        answer = await self._query(name, "TLSA", self._resolvers.local())  # another',
        '        answer = await self._query(name, "TLSA", self._resolvers.all())  # another',
        "tests/deliverer/test_dane.py -k another_host_cannot",
    ),
    Mutation(
        "the MX record of a next hop with DANE is asked of any name server",
        "mailcore/routing/mx.py",
        "        resolver = (self._resolvers.local() if wanted.validated else None) or self._resolvers.all()\n",
        "        resolver = self._resolvers.all()\n",
        "tests/deliverer/test_dane.py -k another_host_cannot",
    ),
    Mutation(
        "the AD bit of any name server counts",
        "mailcore/routing/tlsa.py",
        "    return local and bool(answer.response.flags & dns.flags.AD)\n",
        "    return bool(answer.response.flags & dns.flags.AD)\n",
        "tests/deliverer/test_dane.py -k ad_bit",
    ),
    Mutation(
        "an MX host that the MTA-STS policy does not name gets mail",
        "mailcore/deliverer/client.py",
        "            why = refusal(policy, address.host)\n",
        "            why = ''\n",
        "tests/deliverer/test_mta_sts.py -k does_not_name",
    ),
    Mutation(
        "a policy that is kept ends with its TXT record",
        "mailcore/deliverer/mta_sts.py",
        "            return kept  # without a TXT record a policy that is kept stays in force (RFC 8461 5.1)\n",
        "            return None\n",
        "tests/deliverer/test_mta_sts.py -k outlives",
    ),
    Mutation(
        "a policy is not written to disk",
        "mailcore/deliverer/mta_sts.py",
        "        self._keep(fetched)\n",
        "        self._remember(fetched)\n",
        "tests/deliverer/test_mta_sts.py -k outlives",
    ),
    Mutation(
        "a probe looks at no certificate",
        "mailcore/receiver/probe.py",
        '        missing = checked(self._writer.get_extra_info("ssl_object"), policy).missing\n',
        "        missing = ''\n",
        "tests/receiver/test_probe_tls.py -k man_in_the_middle",
    ),
    Mutation(
        "a password goes out in the clear",
        "mailcore/deliverer/login.py",
        "    if not connection.tls and not settings.without_tls:\n",
        "    if False:\n",
        "tests/deliverer/test_login.py -k clear",
    ),
    Mutation(
        "a password goes to a server that was not checked",
        "mailcore/deliverer/login.py",
        "    if not connection.tls_verified and not (settings.without_verification or settings.without_tls):\n",
        "    if False:\n",
        "tests/deliverer/test_login.py -k not_checked",
    ),
    Mutation(
        "what a server repeats of a login is recorded",
        "mailcore/deliverer/login.py",
        "    text = _struck_out(reply.text, secrets)\n",
        "    text = reply.text\n",
        "tests/deliverer/test_login.py -k wrong_password",
    ),
    Mutation(
        "a connection is used for mail of another login",
        "mailcore/deliverer/client.py",
        "        hop: HopKey = (work.transport, policy, work.next_hop, login)\n",
        "        hop: HopKey = (work.transport, policy, work.next_hop, None)\n",
        "tests/deliverer/test_login.py -k sender_with_a_line",
    ),
    Mutation(
        "mail of others is signed",
        "mailcore/manager/flow.py",
        "            self._signs and is_ours(envelope, self._networks),\n",
        "            self._signs,\n",
        "tests/end_to_end/test_dkim.py -k not_ours",
    ),
    Mutation(
        "a login gets signatures of any domain",
        "mailcore/deliverer/signing.py",
        "        if not files or (author_domains is not None and not covers(author_domains, domain)):\n",
        "        if not files:\n",
        "tests/end_to_end/test_dkim.py -k login_gets",
    ),
    Mutation(
        "the envelope does not say whom a login may sign for",
        "mailcore/receiver/data_session.py",
        "            author_domains=self.author_domains,\n",
        "",
        "tests/receiver/test_author_domains.py",
    ),
    Mutation(
        "the fields that must be there once are not named once more",
        "mailcore/dkim/signature.py",
        "        if key in OVERSIGNED:\n",
        "        if False:\n",
        "tests/dkim/test_signature.py",
    ),
    Mutation(
        "a key that cannot be used lets mail leave unsigned",
        "mailcore/deliverer/signing.py",
        "        signers = [file.signer(now) for file in files]\n",
        "        signers = [file.signer(now) for file in files if not file._reason]\n",
        "tests/end_to_end/test_dkim.py -k lost",
    ),
]
