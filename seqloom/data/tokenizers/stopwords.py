"""Function words of English: articles, pronouns, auxiliaries, prepositions, conjunctions. No negation is among them: a
review that is "not good" must not become "good"."""

ENGLISH = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what
am is are was were be been being have has had having do does did doing
will would shall should can could may might must
about above across after against along among around as at before behind below beneath beside between beyond by during
for from in into of off on onto out over through to toward towards under until up upon with within
and or but if because while since so than then though although
there here when where why how
all any both each every few more most other some such own same very just too also only again once
"""
