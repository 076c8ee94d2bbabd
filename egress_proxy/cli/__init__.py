"""Start-up and verbs: the only folder that knows all the others. serve.py composes the service.

Imports every ring; nothing imports it. Data goes to stdout, messages to stderr; exit_codes.py has the codes.
Start at main.py; arguments.py has the flags, plan.py what serve.py gets.
"""
