"""Human evaluation: people compare texts in pairs, or rate them one by one, without knowing who wrote which.

study.py    which pairs or texts are judged, by whom, in what order, on which side: drawn once, then never changed
answers.py  what judges answered, on disk the moment they answer
server.py   the page for judges and the few requests it makes
report.py   preferences or ratings, how sure they are, agreement and the quality of judges
"""
