// Browsers start no workers on pages opened as files. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      this.inside = this.frame.contentWindow
      const page = this.inside.document
      // Writing ends the first load of the frame, which would otherwise replace the page later.
      page.open()
      page.write("<!doctype html><title>Search</title>")
      page.close()
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      const load = (source) =>
        new Promise((done, failed) => {
          const script = page.createElement("script")
          Object.assign(script, { src: source, onload: done, onerror: failed })
          page.head.append(script)
        })
      this.inside.importScripts = async (...sources) => {
        for (const source of sources) await load(source)
      }
      this.loaded = load(address)
    }

    postMessage(data) {
      this.loaded.then(() => {
        const copy = structuredClone(data)
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data: copy }))
      })
    }

    terminate() {
      this.frame.remove()
    }
  }
  // The search looks for this name to find out where it runs.
  window.IFrameWorker = FrameWorker
  window.Worker = FrameWorker
}
