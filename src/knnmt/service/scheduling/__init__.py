"""Which texts are decoded when: clients take turns, and their texts are decoded together.

batching.py        the batcher: takes texts in, decodes batch after batch, hands translations over
waiting_texts.py   texts that wait, the requests that wait for them, and who watches their progress
waiting_pieces.py  segments that wait, and which of them make the next batch
result_cache.py    recent results
fair_queue.py      which client comes next, and how much each may hold at once
fair_threads.py    threads for other work on what clients send
"""
