mokscope execute --sms 4 --comm-sms 3
