"""The explorer: one HTML file with networks, test images and an engine that runs in the browser.

`engine` computes (JavaScript, in a worker), `page` shows. `content` collects networks and images,
`modules` joins the JavaScript files, `assemble` writes the page.
"""
