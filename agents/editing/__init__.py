"""What people say beside a rule: clauses that forbid, command and lock; and how they are said.

``clauses`` are those as arrays, ``conditions`` reads where they hold, ``editor`` is what
:meth:`~oda_rl.agents.policies.rules.RulePolicy.edit` returns.
"""
