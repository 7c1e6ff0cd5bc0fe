package main

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// maxHistory is how many rates the screen remembers.
const maxHistory = 60

// watchScreen is the state of the live view.
type watchScreen struct {
	ctx      context.Context
	look     func(context.Context) (sample, error)
	interval time.Duration
	title    string

	width, height int
	paused        bool
	looked        bool // there is a sample
	latest        sample
	err           error
	history       []float64
}

// lookedMsg is what a look has found.
type lookedMsg struct {
	sample sample
	err    error
}

// dueMsg says that it is time for the next look.
type dueMsg struct{}

// Init begins with a look.
func (w *watchScreen) Init() tea.Cmd { return w.lookOnce }

func (w *watchScreen) lookOnce() tea.Msg {
	x, err := w.look(w.ctx)
	return lookedMsg{x, err}
}

// Update reacts to a key, to a new size, and to what was found.
func (w *watchScreen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		w.width, w.height = m.Width, m.Height
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c":
			return w, tea.Quit
		case "p", "space":
			w.paused = !w.paused
		}
	case lookedMsg:
		w.take(m)
		return w, tea.Tick(w.interval, func(time.Time) tea.Msg { return dueMsg{} })
	case dueMsg:
		if w.paused {
			return w, tea.Tick(w.interval, func(time.Time) tea.Msg { return dueMsg{} })
		}
		return w, w.lookOnce
	}
	return w, nil
}

// take takes over what was found. Where a look has failed, what the last one has found
// stays on the screen, with the error.
func (w *watchScreen) take(m lookedMsg) {
	if w.err = m.err; m.err != nil {
		return
	}
	w.latest, w.looked = m.sample, true
	if m.sample.firstRates {
		return
	}
	w.history = append(w.history, m.sample.begun)
	w.history = w.history[max(0, len(w.history)-maxHistory):]
}

// View draws the screen.
func (w *watchScreen) View() tea.View {
	v := tea.NewView(w.draw())
	v.AltScreen = true
	v.WindowTitle = "transferctl watch"
	return v
}
