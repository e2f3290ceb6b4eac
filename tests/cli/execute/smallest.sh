mokscope execute --ranks 1 --sms 2 --comm-sms 1 --tokens 5
