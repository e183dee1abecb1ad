// Search runs in a worker. Browsers start none for pages that are opened as files, so there an invisible frame takes the
// worker's place: it has a window and messages of its own, too.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.src = "about:blank"
      this.waiting = []
      const begin = () => {
        document.body.appendChild(this.frame)
        const inside = this.frame.contentWindow
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        inside.importScripts = (...scripts) => Promise.all(scripts.map(script => this.load(script)))
        this.load(address).then(() => {
          this.inside = inside
          this.waiting.splice(0).forEach(data => this.postMessage(data))
        })
      }
      if (document.body) begin()
      else addEventListener("DOMContentLoaded", begin)
    }

    load(address) {
      const script = this.frame.contentDocument.createElement("script")
      script.src = new URL(address, location.href).href
      return new Promise((loaded, failed) => {
        script.onload = loaded
        script.onerror = failed
        this.frame.contentDocument.body.appendChild(script)
      })
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
      else this.waiting.push(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
