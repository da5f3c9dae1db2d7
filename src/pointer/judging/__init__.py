"""Human evaluation: people compare texts in pairs without knowing who wrote which, and a report counts their votes.

study.py    which pairs are judged, by whom, in what order, on which side: drawn once, then never changed
answers.py  what judges answered, on disk the moment they answer
server.py   the page for judges and the few requests it makes
report.py   preferences, significance, agreement and the quality of judges
"""
