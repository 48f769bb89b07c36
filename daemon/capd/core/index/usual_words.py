"""Words that often occur in the texts of the index, with an upper bound of their tokens.

With these a daemon that has counted nothing yet can tell that the text about a usual catalog
(`trigger_map`) fits into its limit. So no first session waits for the process that counts.
`tests/core/index/test_token_costs.py` compares the bounds with the tokenizer.
"""

from typing import Final

_ONE = """
    a access account add agent agents ai all analysis analytics and answer api app apply apps
    archive ask assistant audio audit auth aws azure back backup bank base bash benchmark book
    bot browse browser bucket build bus cache calculate calculator calendar call camera card
    chart chat check choose chrome clean cli click client clone close cloud cluster code collect
    commerce commit compare compile compose compress compute computer config configure connect
    contact contacts container containers content control convert copy core crawl create crm
    cron data database date db debug delegate delete deploy describe design desktop detect dev
    devices diagram dictionary diff discover disk dns doc docker docs document documents domain
    download draft draw drive echo edit editor email embed error errors estimate evaluate event
    events excel exchange execute export extract fax feed fetch file files fill filter finance
    find fire fix folder forecast form format forms forum game games gateway generate geo get
    git github google graph graphs group help history home host hosting html http image images
    import index info inspect install invoice issue issues java job jobs join journal json key
    keys knowledge lab label language launch law learn legal library linear link lint linux list
    listen load local log logs mail make manage manager map maps market math measure media
    medical meeting memo memory merge message messages metrics mobile model models modify
    monitor move music navigate network news node notes notifications notify number office open
    order orders page pages parse parser patch path pay payment payments pdf people phone photo
    photos plan play plot policy post postgres predict prepare print process profile program
    project projects prompt prototype proxy publish pull push python query queue rank read
    reader recipes record registry release remember remote remove rename render report reports
    request requests research reserve resize resolve resources restart restore resume retrieve
    review rewrite roll route run rust sales save scale scan schedule screen script scripts sea
    search secret security send server service services session set share shell ship shop show
    site slides sms social solve sort source space speech split sql stack start status step
    stock stocks stop storage store stream stripe structure style submit subscribe support swift
    sync system table tables tags tail task tasks team terminal test tests text think thinking
    ticket tickets time timer tool tools trace track tracker trade train training transform
    translate travel tree type types ui uml unit update upgrade upload url use user users
    validate vault vector verify version video view vision visit voice wallet watch weather web
    wiki wind word work workflow write yaml zip zoom
"""

_TWO = """
    analyze annotate assess automate databases diagnose examine explain explore figma gitlab
    improve integrate investigate kube locate maintain messaging migrate monitoring notion
    optimize organize podcast rebase recall refactor remind replay revert scrape scraper secrets
    sentry sketch slack sqlite tooling transcribe trello tune visualize
"""

USUAL_WORDS: Final = {
    word: most for most, words in ((1, _ONE), (2, _TWO)) for word in words.split()
}
"""Each word with the most tokens that it can have after a space."""

JOINTS = ("-", "_", "\n", "):\n")
"""What may come before a word in place of a space; each adds one token at most."""
